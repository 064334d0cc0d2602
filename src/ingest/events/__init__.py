"""What a source tells, in commit order, whatever it is: facts, and its tables at that place of its log."""
