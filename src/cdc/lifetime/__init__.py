"""React to signals, and set how often garbage is collected: what every process does from its start to its end."""
