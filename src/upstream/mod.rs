//! Where complete buckets go: MongoDB, or archive files.
