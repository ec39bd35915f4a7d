package main

import (
	"net/netip"
	"reflect"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/operator/api"
)

// placeholder is the name of a value in the help of a parameter.
var placeholder = regexp.MustCompile(`<([a-z, ]+)>`)

// addParams gives a command a flag for each parameter of a request, with its help and its words. What the request has
// is the default. Those of a page have other flags. It reports whether the request has arguments.
func (c *cli) addParams(cmd *cobra.Command, request any) (args bool) {
	for _, p := range api.Params(request) {
		switch {
		case p.Tag.Get("arg") != "":
			args = true
		case p.Name != "after" && p.Name != "limit":
			c.addParam(cmd, p)
		}
	}
	return args
}

func (c *cli) addParam(cmd *cobra.Command, p api.Param) {
	if _, set := p.Text(); !set && p.Default != "" {
		if err := p.Set(p.Default); err != nil {
			panic(err) // a tag of the type is wrong
		}
	}
	flags, short, help := cmd.Flags(), p.Tag.Get("short"), placeholder.ReplaceAllString(p.Help, "`$1`")
	switch field := p.Field().(type) {
	case *bool:
		flags.BoolVarP(field, p.Name, short, *field, help)
	case *int:
		flags.IntVarP(field, p.Name, short, *field, help)
	case *[]string:
		flags.StringSliceVarP(field, p.Name, short, *field, help)
	case *api.Age:
		flags.VarP((*ageFlag)(field), p.Name, short, help)
	case *time.Time, *netip.Prefix, **string:
		flags.VarP(paramFlag{p, c}, p.Name, short, help)
	default:
		text := reflect.ValueOf(field).Convert(reflect.TypeFor[*string]()).Interface().(*string)
		flags.StringVarP(text, p.Name, short, *text, help)
	}
	if len(p.Words) > 0 {
		oneOf(cmd, p.Name, p.Words)
	}
}

// takeArgs makes the arguments of a command the parameter that takes them.
func takeArgs(request any, args []string) {
	for _, p := range api.Params(request) {
		if p.Tag.Get("arg") != "" {
			*p.Field().(*[]string) = args
		}
	}
}

// paramFlag is a parameter with a form of its own on the command line.
type paramFlag struct {
	api.Param
	c *cli
}

// Set reads a time in one of the ways of 'mta log', and the others as the relay does.
func (f paramFlag) Set(text string) (err error) {
	if t, ok := f.Field().(*time.Time); ok {
		*t, err = f.c.parseTime("--"+f.Name, text)
		return err
	}
	if err := f.Param.Set(text); err != nil {
		return usagef("--%s: %v", f.Name, err)
	}
	return nil
}

func (f paramFlag) String() string { return "" }

func (f paramFlag) Type() string { return "string" }
