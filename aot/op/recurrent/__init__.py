"""Operators that keep a state from one run to the next: SVDF, LSTM, RNN."""
