package postgres

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// conn is a connection on which nothing is ever cancelled: that would end a commit's wait for the standby and show its
// rows to everybody. pgconn cancels when a context ends and when a read fails, so here it only connects.
type conn struct {
	net.Conn
	front *pgproto3.Frontend
}

// errUnknown is that of a call which may have been carried out, or may yet be.
var errUnknown = errors.New("the outcome is unknown")

// Unknown reports whether a call that gave an error may have been carried out all the same.
func Unknown(err error) bool { return errors.Is(err, errUnknown) }

// errReadOnly is that of a server which is not the primary.
var errReadOnly = errors.New("it is a standby that has not been promoted: if the primary is gone, promote it")

// writable has a connection be used if it may be written to.
func writable(ctx context.Context, c *pgconn.PgConn) error {
	err := pgconn.ValidateConnectTargetSessionAttrsReadWrite(ctx, c)
	if err != nil && strings.HasPrefix(err.Error(), "read only") {
		return errReadOnly
	}
	return err
}

// fault is an error of the database for people: in one line, with what to do about it where that is known.
type fault struct{ error }

func (f fault) Unwrap() error { return f.error }

var oneLine = strings.NewReplacer("ValidateConnect failed: ", "", "context deadline exceeded", "no answer in time",
	":\n\t", ": ", "\n\t", "; ", "\n", "; ")

func (f fault) Error() string {
	text, p, code := oneLine.Replace(f.error.Error()), (*pgconn.PgError)(nil), ""
	if errors.As(f.error, &p) {
		code = p.Code
	}
	switch {
	case errors.As(f.error, new(x509.UnknownAuthorityError)):
		return text + ": this machine does not know the authority that has issued the certificate: add " +
			"sslrootcert=FILE to the connection string, with the authority's certificate"
	case slices.Contains([]string{"3F000", "42P01", "42883", "42501"}, code): // a schema, a table, a function, a right
		return text + ": run 'mta cluster init', and then the two GRANTs of docs/cluster.md"
	case code == "55P03": // no lock within lock_timeout
		return text + ": a transaction before it has not ended: it may wait for a standby that is away; start that, " +
			"or look at pg_stat_activity, and try again"
	case code == "25006": // read only
		return text + ": " + errReadOnly.Error()
	case Unknown(f.error) && errors.Is(f.error, context.DeadlineExceeded):
		return text + ": if the server runs, its commit waits for a standby that is away: start that; " +
			"pg_stat_replication shows it"
	case errors.Is(f.error, io.EOF), errors.Is(f.error, io.ErrUnexpectedEOF):
		return text + ": the server, or a proxy before it, has closed the connection: its log may say why"
	}
	return text
}

// raised is the code of errors that our functions raise: their words are for people.
const raised = "P0001"

// longest is an answer that no cluster reaches.
const longest = 256 << 20

// tooOld is the version of a server that lacks something.
type tooOld string

func (t tooOld) Error() string { return "PostgreSQL " + string(t) + ": 14 or newer is needed" }

func dial(ctx context.Context, cfg *pgconn.Config) (*conn, error) {
	c, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	number, version := 0, c.ParameterStatus("server_version")
	if _, err := fmt.Sscan(version, &number); err == nil && number < oldest {
		c.Conn().Close()
		return nil, tooOld(version)
	}
	if err = c.SyncConn(ctx); err == nil {
		var h *pgconn.HijackedConn
		if h, err = c.Hijack(); err == nil {
			h.Frontend.SetMaxBodyLen(longest)
			return &conn{h.Conn, h.Frontend}, nil
		}
	}
	c.Conn().Close()
	return nil, err
}

// call carries out one statement, which is a transaction, in one round trip without a prepared statement of any name.
// Its execution and its end are sent at once, after all else: between the two the server holds locks, so that no client
// may be stopped there.
func (c *conn) call(sql string, args [][]byte, formats []int16) ([]byte, error) {
	c.front.SendParse(&pgproto3.Parse{Query: sql})
	c.front.SendBind(&pgproto3.Bind{Parameters: args, ParameterFormatCodes: formats})
	if err := c.flush(); err != nil {
		return nil, err
	}
	c.front.SendExecute(&pgproto3.Execute{})
	c.front.SendSync(&pgproto3.Sync{})
	return c.answer()
}

// script carries out statements as one transaction.
func (c *conn) script(sql string) error {
	c.front.SendQuery(&pgproto3.Query{String: sql})
	_, err := c.answer()
	return err
}

// answer returns the first column of the last row, once the transaction has ended as it should. A commit that did not
// wait for the standby to its end is reported as a warning, after the row.
func (c *conn) answer() (value []byte, err error) {
	if err := c.flush(); err != nil {
		return nil, fmt.Errorf("%w: %w", errUnknown, err)
	}
	for {
		message, broken := c.front.Receive()
		if broken != nil {
			return nil, fmt.Errorf("%w: before the end of the transaction: %w", errUnknown, broken)
		}
		switch m := message.(type) {
		case *pgproto3.DataRow:
			if len(m.Values) > 0 {
				value = slices.Clone(m.Values[0])
			}
		case *pgproto3.NoticeResponse:
			if m.SeverityUnlocalized == "WARNING" {
				err = fmt.Errorf("%w: %w", errUnknown, pgconn.ErrorResponseToPgError((*pgproto3.ErrorResponse)(m)))
			}
		case *pgproto3.ErrorResponse:
			if err = pgconn.ErrorResponseToPgError(m); m.Code == raised {
				err = errors.New(m.Message)
			}
		case *pgproto3.ReadyForQuery:
			if err == nil && m.TxStatus != 'I' {
				err = fmt.Errorf("%w: the transaction has not ended: state %q", errUnknown, m.TxStatus)
			}
			return value, err
		}
	}
}

// flush sends what was prepared. From now on the connection has its time until the answer.
func (c *conn) flush() error {
	if err := c.SetDeadline(time.Now().Add(abandon)); err != nil {
		return err
	}
	return c.front.Flush()
}
