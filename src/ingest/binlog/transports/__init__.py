"""Where the bytes of a binlog come from: files, servers, a thread between."""
