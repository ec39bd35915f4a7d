package config

import (
	"fmt"
	"reflect"
	"strings"

	"example.org/mta/internal/settings"
)

// BlockReference describes a block of the file.
type BlockReference struct {
	// Name is "" for the top of the file. A block within another that shares its name with a block at the
	// top is named after both, such as "stage.provider".
	Name     string
	Settings []SettingReference // in the order of the file
}

// SettingReference describes a setting.
type SettingReference struct {
	Name    string
	Kind    string // of its values, such as "size, at least 1MiB"
	Default string // as the file has it; "" for none, or for one that depends on other settings
	Restart bool   // a reload leaves the setting as it is
}

// Reference describes every setting that the file can have. Settings that provider and domain have in
// common with defaults are listed in defaults only.
func Reference() map[string]BlockReference {
	all := make(map[string]BlockReference)
	for name, v := range blocks() {
		b := BlockReference{Name: name}
		own := settingsOf(name, v)
		for f := range settings.Fields(v) {
			if _, ok := own[f.Name]; ok {
				b.Settings = append(b.Settings,
					SettingReference{f.Name, settings.Describe(f), defaultText(f), needsRestart(name, f)})
			}
		}
		all[name] = b
	}
	return all
}

// blocks gives, by name, a struct with the defaults of each block that the file can have; ""
// is the top of the file. A block within another that has the name of one at the top is named
// with the one that it is in, as "stage.provider".
func blocks() map[string]reflect.Value {
	c := builtIn()
	all := map[string]reflect.Value{"": reflect.ValueOf(c).Elem()}
	var walk func(v reflect.Value, name string)
	walk = func(v reflect.Value, name string) {
		for f := range settings.Fields(v) {
			in, key := f.Value, blockKey(name, f.Name)
			switch f.Kind {
			case settings.Many:
				e := reflect.New(f.Value.Type().Elem().Elem())
				settings.Defaults(e.Interface())
				in = e.Elem()
				if f.Name == "listener" { // the built-in one has an address too
					in = reflect.ValueOf(c.Listeners[0]).Elem()
				}
			case settings.Single:
			default:
				continue
			}
			if old, ok := all[key]; !ok || old.IsZero() {
				all[key] = in
			}
			walk(in, key)
		}
	}
	walk(all[""], "")
	return all
}

// blockKey is the name that blocks gives a block within another.
func blockKey(outer, name string) string {
	if _, top := named(reflect.ValueOf(&Config{}).Elem(), name); top && outer != "" {
		return outer + "." + name
	}
	return name
}

// settingsOf lists the settings of a block, without those of its inner blocks. What provider
// and domain, also those of a source or pool, have in common with defaults is listed there only.
func settingsOf(name string, v reflect.Value) map[string]settings.Field {
	own := make(map[string]settings.Field)
	for f := range settings.Fields(v) {
		own[f.Name] = f
		if _, shared := named(reflect.ValueOf(&Traffic{}).Elem(), f.Name); f.Kind != settings.Setting ||
			shared && (strings.HasSuffix(name, "provider") || strings.HasSuffix(name, "domain")) {
			delete(own, f.Name)
		}
	}
	return own
}

// defaultText gives a default as the manual has it, "" for what has none or depends on others.
func defaultText(f settings.Field) string {
	switch f.Value.Kind() {
	case reflect.String, reflect.Slice, reflect.Map:
		if f.Value.Len() == 0 {
			return ""
		}
	}
	if schema().Bounded(f) != nil { // it must be set
		return ""
	}
	if a := fmt.Sprintf("%T", f.Value.Interface()); a == "netip.Addr" {
		return ""
	}
	return settings.Literal(f.Value, "")
}

// needsRestart looks at the tags of a setting and of its block.
func needsRestart(name string, f settings.Field) bool {
	if b, ok := named(reflect.ValueOf(&Config{}).Elem(), name); ok && name != "" && b.Tag.Get("reload") == "restart" {
		return true
	}
	return f.Tag.Get("reload") == "restart"
}

// named finds what stands for name in the block of the struct v.
func named(v reflect.Value, name string) (settings.Field, bool) {
	for f := range settings.Fields(v) {
		if f.Name == name && name != "" {
			return f, true
		}
	}
	return settings.Field{}, false
}
