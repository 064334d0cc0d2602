"""A read-only server of the Model Context Protocol: programs search and explain the rows of dashboards, with proof."""
