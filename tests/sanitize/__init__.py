"""The allocators under random programs on many threads, built with AddressSanitizer and with ThreadSanitizer."""
