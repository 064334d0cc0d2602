"""The plan's steps in Java, the program that tells them the plan, and their jar."""
