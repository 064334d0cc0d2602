"""The words of Tailorbird: pure values and functions shared by every stage; standard library and yaml only."""
