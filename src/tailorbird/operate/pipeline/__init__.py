"""Run all processes of a topology on this machine (`tailorbird run`)."""
