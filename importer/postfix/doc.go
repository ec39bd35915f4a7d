// Package postfix imports the configuration of a Postfix: main.cf, master.cf and the tables that they name. It
// never calls Postfix's programs and never asks a server. The result is a draft of mta.conf; what has no counterpart
// is noted in it.
//
// The way through it: import.go reads main.cf with expand.go, master.go and table.go, and goes through the parts in
// order; hop.go, transport.go, outgoing.go and tls.go make routes, sources, pools and destinations; incoming.go makes
// listeners. Parameters that nobody has asked for are noted.
package postfix
