// Package submission takes messages in over SMTP. Package intake checks them and hands them to the
// queue; the answer is 250 when the queue has made a message durable, and not before.
//
// go-smtp (unmodified) parses commands and drives the session; conn, our net.Conn around the
// client's, contains it. A connection goes through the files in this order:
//
//	slots.go        the limits on all connections, and on those of a tenant
//	preflight.go    PROXY header, relay rights, limit per client, early talkers, TLS
//	conn.go         hands the library one command line at a time, collects its replies
//	gate.go         what a command line must be before the library sees it
//	parameters.go   the address and the parameters of MAIL and RCPT
//	auth.go         logins
//	session.go      MAIL, RCPT, DATA and BDAT as the library calls them, on to package intake
//	inbound.go      mail for the relay itself, which strangers may bring: reports about mail that it has sent
//	transfer.go     content as it comes, its deadlines, the end of DATA, and dot-stuffing
//	answers.go      the library's replies in our words
//	replies.go      our own replies
//
// connections.go has those that are open, watch.go lets operators follow them.
//
// conn stands above TLS and gives the library exactly the bytes that it wants: one command line
// when it asks for a command, the octets of one chunk after BDAT, and nothing after the end of
// DATA. The library can therefore never hold bytes back that it takes for something else later,
// which is how its known desynchronisations arise (a time-out within DATA, its issue 196; CR
// CRLF . CRLF, which its reader does not take for the end; a BDAT chunk cut short, which it
// takes for a whole one).
//
// Goroutines: one for each connection, started by go-smtp; it owns the conn and ends when the
// client leaves, a deadline passes, or Shutdown cuts the connection. One more while a message
// comes in by BDAT, started by go-smtp; it ends with the message. One in Serve that accepts
// connections after STARTTLS; Shutdown stops it and waits for it.
package submission
