"""Which of its candidates each layer takes, under the user's budgets."""
