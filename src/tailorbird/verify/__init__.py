"""Compare what each stage of a pipeline holds with what it should hold, row by row."""
