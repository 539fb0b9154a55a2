"""A JAX training loop with flax and optax."""
import pathlib
import sys

import jax
import optax
from flax import nnx

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))  # plain/ uses the same model
import byte_gpt


def main():
    arguments = byte_gpt.arguments()
    model = byte_gpt.Gpt()
    rate = byte_gpt.learning_rate(arguments.steps)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate, b2=0.95))
    graph, parameters = nnx.split(model)
    state = optimizer.init(parameters)

    @jax.jit
    def step(parameters, state, text):
        loss, gradients = jax.value_and_grad(lambda p: nnx.merge(graph, p)(text))(parameters)
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, loss

    for number, text in enumerate(byte_gpt.batches(arguments.steps, arguments.text)):
        parameters, state, loss = step(parameters, state, text)
        if number % 20 == 0 or number == arguments.steps - 1:
            print(f"step {number} loss {loss:.4f}")


if __name__ == "__main__":
    main()
