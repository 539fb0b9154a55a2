// Ctrl-C: the first one asks the training to stop after its step, the second one ends the program.
#ifndef TRAIN_GPT_INTERRUPT_H
#define TRAIN_GPT_INTERRUPT_H

namespace gpt {

void catch_interrupts();
bool interrupted();

}  // namespace gpt

#endif
