"""Export the changes of captured tables in formats of other systems, each exactly once even if the writer crashes."""
