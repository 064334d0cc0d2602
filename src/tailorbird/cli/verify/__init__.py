"""`tailorbird verify`: a file for each stage."""
