"""What wrong arguments of torch.ops.octavo get: a typed error that says what was expected, and no
crash. And the least that is right: no rows."""
import pytest
import torch

import octavo
from conftest import msamp, te
from octavo import _abi
from octavo.errors import from_op
from ops_test import OPS, K, M, N, hyper, natives, prepared, saved_of, weight_of


def raised(kind, op, *arguments):
    with pytest.raises(RuntimeError) as e:
        op(*arguments)
    found = from_op(e.value)
    assert type(found) is kind, found
    return str(found)


def forward_arguments(s, x=None):
    """run, linear, flags, version, x, weight, bias"""
    return [s.number, 0, 0, -1, torch.randn(M, K) if x is None else x, weight_of(s), None]


@pytest.fixture(scope="module")
def te_session():
    return prepared(te())


BAD_X = {"float64": torch.randn(M, K).double(), "K": torch.randn(M, K + 1),
         "int": torch.ones(M, K).int(), "scalar": torch.tensor(1.0)}


@pytest.mark.parametrize("x", BAD_X.values(), ids=BAD_X.keys())
def test_wrong_x(te_session, x):
    text = raised(octavo.InvalidError, OPS.linear_forward, *forward_arguments(te_session[1], x))
    assert f"last dimension of {K}" in text and "x: expected float32" in text


@pytest.mark.parametrize("bias", [torch.randn(N + 1), torch.randn(N).double(),
                                  torch.randn(N, 2)[:, 0]], ids=["size", "float64", "strided"])
def test_wrong_bias(te_session, bias):
    arguments = forward_arguments(te_session[1])
    arguments[6] = bias
    assert "bias: expected" in raised(octavo.InvalidError, OPS.linear_forward, *arguments)


@pytest.mark.parametrize("at, value", [(1, 99), (1, -1)])
def test_wrong_linear(te_session, at, value):
    arguments = forward_arguments(te_session[1])
    arguments[at] = value
    assert f"linear {value}" in raised(octavo.InvalidError, OPS.linear_forward, *arguments)


BAD_WEIGHT = {"none": None, "dtype": torch.zeros(N, K).bfloat16(), "size": torch.zeros(N, K + 1)}


@pytest.mark.parametrize("weight", BAD_WEIGHT.values(), ids=BAD_WEIGHT.keys())
def test_wrong_weight(te_session, weight):
    arguments = forward_arguments(te_session[1])
    arguments[5] = weight
    assert "parameter 0.weight: expected" in raised(octavo.InvalidError, OPS.linear_forward,
                                                    *arguments)


def test_weight_of_any_strides_is_its_values():
    model, s = prepared(te("current"))
    arguments, strided = forward_arguments(s), torch.empty(K, N).t()
    expected = OPS.linear_forward(*arguments)[0]
    arguments[5] = strided.copy_(arguments[5])
    assert torch.equal(OPS.linear_forward(*arguments)[0], expected)


def test_wrong_saved_and_dy(te_session):
    s = te_session[1]
    saved = saved_of(s, M)[1]
    good = [s.number, 0, 1, 7, torch.randn(M, N), None, saved, weight_of(s), None]
    for at, value in ((6, saved[1:]), (6, saved[:0]), (4, torch.randn(M, N + 1)),
                      (4, torch.randn(M + 16, N))):
        raised(octavo.InvalidError, OPS.linear_backward, *good[:at], value, *good[at + 1:])
    OPS.linear_backward(*good)


def test_another_run_and_a_closed_one():
    model, s = prepared(te())
    other = prepared(te("mx"))[1]
    arguments = forward_arguments(s)
    assert s.number != other.number
    raised(octavo.StateError, OPS.linear_forward, 12345, *arguments[1:])
    s.close()
    text = raised(octavo.StateError, OPS.linear_forward, *arguments)
    assert str(s.number) in text and "octavo.prepare" in text


def test_closed_run_in_a_compiled_graph():
    model, s = prepared(te())
    call = torch.compile(model, fullgraph=True, backend="aot_eager")
    call(torch.randn(M, K))
    s.close()
    with pytest.raises((octavo.StateError, RuntimeError)) as e:
        call(torch.randn(M, K))
    assert type(from_op(e.value)) is octavo.StateError
    torch._dynamo.reset()


@pytest.mark.parametrize("recipe", ["delayed", "current", "block", "mx"])
@pytest.mark.parametrize("shape", [(0, K), (3, 0, K)])
def test_no_rows(recipe, shape):
    """An expert without tokens: shapes are kept, and gradients are zeros, not rubbish."""
    model, s = prepared(te(recipe), optimizer=False)
    x = torch.randn(shape).requires_grad_()
    y = model(x)
    assert y.shape == (*shape[:-1], N)
    y.sum().backward()
    assert x.grad.shape == shape
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())
    assert s.nonfinite == 0


def test_unsupported_verbs():
    s = prepared(te())[1]
    raised(octavo.UnsupportedError, OPS.sum_of_squares, s.number, [0], torch.zeros(1), [], [])
    raised(octavo.UnsupportedError, OPS.run_stage, s.number, [0], 0, 2, torch.zeros(1),
           torch.zeros(1), torch.zeros(1))


def bytes_of(count):
    return torch.zeros(count, dtype=torch.uint8)


def test_wrong_tensors_of_step_verbs():
    """Other dtypes, too few elements and strides would be read past the end, or as other values."""
    s = prepared(msamp())[1]
    n, step = s.number, natives(s, [0])
    weight, before = _abi.ROLE_WEIGHT, [None if t is None else t.clone() for t in s.tensors]
    double, none = torch.zeros(8).double(), torch.zeros(0)
    long, strided = bytes_of(4096), torch.zeros(K, N).t()
    wrong = {
        "hyper": (OPS.optimizer_step, [0], [0], hyper(1).double(), None, *step),
        "hyper bf16": (OPS.optimizer_step, [0], [0], hyper(1).bfloat16(), None, *step),
        "hyper rows": (OPS.optimizer_step, [0], [3], hyper(1), None, *step),
        "groups": (OPS.optimizer_step, [0], [], hyper(1), None, *step),
        "parameter": (OPS.optimizer_step, [99], [0], hyper(1), None, *step),
        "weights": (OPS.optimizer_step, [2], [0], hyper(1), None, [], []),
        "gradients": (OPS.optimizer_step, [0], [0], hyper(1), None, [], [torch.zeros(N)]),
        "skip": (OPS.optimizer_step, [0], [0], hyper(1), none, *step),
        "skip dtype": (OPS.optimizer_step, [0], [0], hyper(1), double, *step),
        "sum": (OPS.sum_of_squares, [0], none, *step),
        "sum dtype": (OPS.sum_of_squares, [0], double, *step),
        "sums": (OPS.prepare_step, double, None, None, None, hyper(1), 1.0, 1.0),
        "norm": (OPS.prepare_step, torch.ones(1), None, none, None, hyper(1), 1.0, 1.0),
        "plain shape": (OPS.read_parameter, 0, weight, torch.zeros(3, 3)),
        "plain dtype": (OPS.read_parameter, 0, weight, torch.zeros(N, K).double()),
        "plain strides": (OPS.read_parameter, 0, weight, strided),
        "written strides": (OPS.write_parameter, 0, weight, strided),
        "role": (OPS.read_parameter, 0, 99, torch.zeros(N, K)),
        "send": (OPS.run_stage, [0], 0, 2, long, bytes_of(8), long),
        "recv": (OPS.run_stage, [0], 1, 2, bytes_of(8), long, long),
        "state": (OPS.run_stage, [0], 0, 2, long, long, bytes_of(0)),
        "world": (OPS.run_stage, [0], 0, 0, long, long, long),
        "stage": (OPS.run_stage, [0], 9, 2, long, long, long)}
    accepted = []
    for name, (op, *arguments) in wrong.items():
        try:
            op(n, *arguments)
            accepted.append(name)
        except RuntimeError as e:
            assert type(from_op(e)) is octavo.InvalidError, name
    assert not accepted
    assert all(a is None or torch.equal(a, b) for a, b in zip(before, s.tensors))
