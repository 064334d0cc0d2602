"""The pages of panels: their server, the one asking for all viewers, and what the browser gets."""
