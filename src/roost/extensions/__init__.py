"""Extensions of A2A that Roost knows."""
