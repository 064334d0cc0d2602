"""The steps of a plan in Java (the kernel), the JSON program that describes the plan to them, and the build of their
jar."""
