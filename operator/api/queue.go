package api

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/visible"
)

func (s *Server) show(r *http.Request, _ none) (Item, error) {
	id, err := pathID(r)
	if err != nil {
		return Item{}, err
	}
	return s.config.Queue.Get(r.Context(), id)
}

func (s *Server) content(w http.ResponseWriter, r *http.Request, _ none) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	content, err := s.config.Queue.Content(r.Context(), id)
	if err != nil {
		return err
	}
	defer content.Close()
	from := bufio.NewReader(content)
	if _, err := from.Peek(1); err != nil && err != io.EOF {
		return fmt.Errorf("reading the content of message %s: %w", id, err)
	}
	w.Header().Set("Content-Type", "message/rfc822")
	if _, err := io.Copy(w, from); err != nil {
		// The client must not take a part for the whole: the connection breaks.
		panic(http.ErrAbortHandler)
	}
	return nil
}

// pathID gives the id in the path in its usual spelling.
func pathID(r *http.Request) (string, error) {
	id, err := envelope.ParseID(r.PathValue("id"))
	if err != nil {
		return "", Invalid("", "%v", err)
	}
	return id.String(), nil
}

func (s *Server) change(r *http.Request, c Change) (Changed, error) {
	if !slices.Contains(Actions, c.Action) {
		return Changed{}, Invalid("", "action: want %s, not %q", join(Actions), c.Action)
	}
	if err := c.Filter.Check(); err != nil {
		return Changed{}, err
	}
	if c.Filter.Empty() && !c.All {
		return Changed{}, Invalid("to mean the whole queue, say so: all", "%s: no message is named and no filter given", c.Action)
	}
	if (c.Scheduled || c.Now) && c.Action != Retry {
		return Changed{}, Invalid("", "scheduled and now are for the action %s", Retry)
	}
	if err := c.checkReroute(); err != nil {
		return Changed{}, err
	}
	changed, err := s.config.Queue.Change(r.Context(), c)
	changed.Count = changed.Recipients
	return changed, err
}

func (s *Server) log(w http.ResponseWriter, r *http.Request, q logQuery) error {
	if q.Order == NewestFirst {
		p, err := s.config.Log.Newest(r.Context(), q.LogQuery, q.After, cmp.Or(q.Limit, DefaultLimit))
		if err != nil {
			return err
		}
		return writeJSON(w, &p)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.streams, cancel)()
	out := &recordWriter{w: w}
	err := s.config.Log.Read(ctx, q.LogQuery, out.write, out.flush)
	var damaged *LogDamaged
	switch {
	case errors.As(err, &damaged):
		out.begin()
		w.Header().Set(damageTrailer, visible.Line(damaged.Text, maxDamage))
		return nil
	case err != nil && ctx.Err() != nil:
		// The client went, or the relay stops: this is how following ends.
	case err != nil && out.begun:
		panic(http.ErrAbortHandler)
	case err != nil:
		return err
	}
	out.begin()
	return nil
}

// recordWriter sends records, one to a line.
type recordWriter struct {
	w     http.ResponseWriter
	begun bool
}

func (o *recordWriter) begin() {
	if !o.begun {
		o.w.Header().Set("Content-Type", "application/x-ndjson")
		o.w.Header().Set("Trailer", damageTrailer)
		o.w.WriteHeader(http.StatusOK)
		o.begun = true
	}
}

func (o *recordWriter) write(record []byte) error {
	o.begin()
	if _, err := o.w.Write(record); err != nil {
		return err
	}
	_, err := o.w.Write([]byte{'\n'})
	return err
}

func (o *recordWriter) flush() {
	o.begin()
	// An error shows at the next write.
	_ = http.NewResponseController(o.w).Flush()
}

// ConfigFormat is the form of a configuration.
type ConfigFormat string

// The forms.
const (
	ConfigText ConfigFormat = "text" // as a file that loads
	ConfigJSON ConfigFormat = "json"
)

// ConfigFormats are all of them.
var ConfigFormats = []ConfigFormat{ConfigText, ConfigJSON}

type configQuery struct {
	Format ConfigFormat `q:"format" default:"text" help:"text: as a file that loads; json: settings under their names, blocks as lists of objects"`
}

func (s *Server) effective(w http.ResponseWriter, _ *http.Request, q configQuery) error {
	if q.Format == ConfigJSON {
		return writeJSON(w, new(s.config.Relay.ConfigObject()))
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, s.config.Relay.Config())
	return nil
}

func (s *Server) reload(r *http.Request, in Intent) (Reload, error) {
	read := s.config.Relay.Reload
	if in.DryRun {
		read = s.config.Relay.PreviewReload
	}
	reload, err := read(r.Context())
	reload.Count = len(reload.Changes)
	return reload, err
}
