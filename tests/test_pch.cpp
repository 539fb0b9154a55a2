// Carries the precompiled GoogleTest headers that all test programs share; never built on its own.
int main() {
  return 0;
}
