"""Export captured tables in external formats, each change exactly once even if the writer crashes."""
