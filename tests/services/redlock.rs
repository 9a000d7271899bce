//! Five independent Redis servers: what a majority carries, and what is refused.
