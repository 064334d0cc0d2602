"""The steps of a plan in Java (the kernel), the JSON program that tells them the plan, and the build of their jar."""
