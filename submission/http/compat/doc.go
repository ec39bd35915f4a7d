// Package compat takes the requests of clients that were written for other services: each file is the
// translation of one service into requests of package request. What becomes of each field stands in a
// table, which docs/http-compat.md repeats.
package compat
