//! Addresses, and what else says where the database is.
