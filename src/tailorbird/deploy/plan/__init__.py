"""`tailorbird plan`: what a topology's file asks for, compared with what runs, as ordered steps with their cost."""
