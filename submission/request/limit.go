package request

import (
	"context"
	"fmt"
	"strings"
)

// limited is a writer that stops. The library writes the text before each tag, even if there is none, so
// that each round of each loop comes here.
type limited struct {
	out         strings.Builder
	ctx         context.Context
	room, steps int
	err         error // the first one, and that of each write after it
}

// stepsPerLook is the number of writes between two looks at the context.
const stepsPerLook = 16

func (w *limited) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	w.steps--
	w.room -= len(p)
	switch {
	case w.steps < 0:
		w.err = errSteps
	case w.room < 0:
		w.err = fmt.Errorf("the rendered text is longer than %d octets", w.out.Len()+len(p)+w.room)
	case w.steps%stepsPerLook == 0:
		w.err = w.ctx.Err()
	}
	if w.err != nil {
		return 0, w.err
	}
	return w.out.Write(p)
}

var errSteps = fmt.Errorf("rendering takes more than %d steps", maxSteps)
