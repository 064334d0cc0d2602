"""The command line: parse arguments, call the packages below, print results."""
