package submission

// protocolName gives what "with" says in a Received field (RFC 3848; RFC 6531, 4.3).
func protocolName(extended, utf8, secure, loggedIn bool) string {
	name := "ESMTP" // after HELO too when there is more to say: RFC 3848 has no name for SMTP over TLS
	switch {
	case !extended && !secure:
		return "SMTP"
	case utf8:
		name = "UTF8SMTP"
	}
	if secure {
		name += "S"
	}
	if loggedIn {
		name += "A"
	}
	return name
}
