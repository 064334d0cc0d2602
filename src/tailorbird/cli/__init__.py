"""What people type: arguments and printing."""
