// Package smtpclient is one SMTP connection as its client sees it: transactions in, a reply for
// each recipient out, with as many messages on the wire as the host can bear.
//
// Its parts in the order of use: the caller dials; [Handshake] reads the greeting, says EHLO,
// secures and authenticates, and gives a [Conn]; [Conn.Send] hands over a [Transaction]; its Done
// tells the [Outcome]; [Conn.Quit] or [Conn.Close] ends it.
//
// A host is talked to in one of three modes, the best that it offers:
//
//   - [LockStep]: one command, one reply.
//   - [Pipelined] (RFC 2920): MAIL, RCPT..., DATA in one flight; the content, the final dot and the
//     envelope of the next message in the next. One round trip a message.
//   - [Chunked] (RFC 2920 and RFC 3030): MAIL, RCPT..., BDAT LAST need no go-ahead, so a window of
//     whole messages is under way at any time. Many messages a round trip.
//
// What was acknowledged is told as [Answered] at once and stays so whatever happens to the connection
// afterwards; what never reached the host is [Untried] and counts no attempt; what may or may not
// have been taken is [Ambiguous].
//
// Long-lived goroutines, two for each Conn, started by Handshake when it succeeds:
//
//   - the writer owns the flight (the buffer of what goes out) and the transaction that it is
//     writing; it sleeps until there is something that may be written. It ends when the connection
//     has ended or QUIT is written. The reader waits for it.
//   - the reader owns the buffer of what comes in, pairs each reply with the command that is first
//     in the list of the expected ones, and settles transactions. It ends when the host closes, a
//     deadline passes, or Close is called; it then settles what is left, and closes [Conn.Ended],
//     on which Quit and Close wait.
//
// The page docs/smtpclient.md shows the flights and says what each kind of trouble means for the
// transactions on the connection.
package smtpclient
