"""What captures have committed, read table by table in one order: for those who serve it on, and to look at."""
