"""Compile SELECT to a plan: parse it, flatten it, bind it to the schemas, and refuse what would not stay correct."""
