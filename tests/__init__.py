"""Tests of Isthmus; their folders mirror the sources."""
