"""Policies whose weights are at a service that speaks the Tinker API: trained, sampled and saved there."""
