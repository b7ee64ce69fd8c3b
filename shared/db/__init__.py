"""The schema and the statements that more than one service needs."""
