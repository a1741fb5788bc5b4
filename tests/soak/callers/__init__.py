"""Callers of two gateways beside lists of rows: random calls by several identities, each answer held against a model."""
