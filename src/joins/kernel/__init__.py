"""The plan's steps in Java, the program that describes the plan to them, and their jar."""
