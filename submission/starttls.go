package submission

// startTLS answers the STARTTLS command and goes on with TLS under a new conn, which the library
// serves as a new connection: it can't know anything from before (RFC 3207, 4.2). The library's
// own STARTTLS would stand above conn.
func (c *conn) startTLS(arg string) {
	switch {
	case c.srv.cfg.TLS == nil:
		c.answer(noTLS.Reply())
	case c.tls != nil:
		c.answer(alreadyTLS.Reply())
	case c.helo == "":
		c.answer(greetFirst.Reply())
	case arg != "":
		c.answer(noParameters.Reply("STARTTLS")) // RFC 3207, 4
	case c.r < c.w:
		// What came in clear behind STARTTLS could have been put there by anybody, and must not
		// be taken for what the client said under TLS (CVE-2011-0411).
		c.farewell(outOfStep.Reply("STARTTLS"))
	default:
		c.answer(readyForTLS.Reply())
		c.switchToTLS()
	}
}

func (c *conn) switchToTLS() {
	c.setLogin(nil) // and all else that was said in clear (RFC 3207, 4.2)
	if c.flush() != nil || !c.handshake() {
		return
	}
	next := &conn{srv: c.srv, client: c.client, socket: c.socket, raw: c.raw, tls: c.tls}
	next.mu.greeted = true
	next.client.MayHold = next.mayHold
	c.giveBack()
	c.srv.remove(c, next)
	c.moved = true
	c.finish()
	if !c.srv.afterTLS.Give(next) {
		next.Close()
	}
}
