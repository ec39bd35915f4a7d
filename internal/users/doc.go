// Package users reads and changes the users file: who may log in, with which password or
// certificate, for which tenant, and with which senders' addresses. It knows no protocol and keeps
// no state: a Table is the file at one moment.
//
// A line is a user:
//
//	name:hash:tenant=acme senders=acme.example,news@b.example certificate=sha256:HEX
//	name:hash:role=operator
//
// The hash is a password's as in hash.go, or empty for a user who has none; what follows it may be
// missing. Lines that are blank or begin with # are kept when the file is changed.
package users
