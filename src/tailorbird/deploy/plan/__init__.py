"""`tailorbird plan`: compare a topology's file with the running system; return ordered steps with their cost."""
