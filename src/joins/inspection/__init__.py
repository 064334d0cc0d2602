"""What a join holds, told from its checkpoint."""
