package bounds

import (
	"fmt"
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	// MaxQuantityDigits limits the digits of a quantity's number, before and after the point.
	// Quantities represent 18 of them exactly and process more of them slowly.
	MaxQuantityDigits = 1000
	// MaxQuantityExponent limits the exponent of a quantity such as 1e3, in both directions.
	MaxQuantityExponent = 1000

	shownText = 40 // characters of a refused text that an error quotes
)

// Quantity returns an error for the text of a quantity that exceeds the limits. It does not check
// the syntax.
func Quantity(text string) error {
	number, exponent := text, ""
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		number, exponent = text[:i], text[i+1:]
		if exponent != "" && (exponent[0] == '+' || exponent[0] == '-') {
			exponent = exponent[1:]
		}
		exponent = strings.TrimLeft(exponent, "0")
	}
	digits := 0
	for i := range len(number) {
		if isDigit(number[i]) {
			digits++
		}
	}
	if digits > MaxQuantityDigits {
		return fmt.Errorf("%s has %d digits: a quantity has at most %d", shorten(text), digits, MaxQuantityDigits)
	}
	value := 0
	for i := 0; i < len(exponent) && isDigit(exponent[i]); i++ {
		if value = value*10 + int(exponent[i]-'0'); value > MaxQuantityExponent {
			return fmt.Errorf("%s has an exponent that is not between -%d and %d", shorten(text), MaxQuantityExponent, MaxQuantityExponent)
		}
	}
	return nil
}

func shorten(text string) string {
	if len(text) > shownText {
		return fmt.Sprintf("%q...", text[:shownText])
	}
	return fmt.Sprintf("%q", text)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// suspect reports whether a document contains anything that Quantity could refuse: four digits in a
// row after an e (zeros count), or too many digits, not counting points. Almost no document does,
// so this check is the whole cost of most documents.
func suspect[T string | []byte](data T) bool {
	const step = 4 // every run of this many digits contains a probe
	for i := step - 1; i < len(data); i += step {
		if !isDigit(data[i]) {
			continue
		}
		from, to := i, i+1
		for from > 0 && (isDigit(data[from-1]) || data[from-1] == '.') {
			from--
		}
		for to < len(data) && (isDigit(data[to]) || data[to] == '.') {
			to++
		}
		if to-from > MaxQuantityDigits {
			return true
		}
		if before := from - 1; to-from >= step && before >= 0 {
			if (data[before] == '+' || data[before] == '-') && before > 0 {
				before--
			}
			if data[before] == 'e' || data[before] == 'E' {
				return true
			}
		}
		i = to
	}
	return false
}

var quantityType = reflect.TypeFor[resource.Quantity]()

var holders sync.Map // reflect.Type to bool: whether it contains a quantity

// holds reports whether values of the type may contain quantities.
func holds(t reflect.Type) bool {
	if known, ok := holders.Load(t); ok {
		return known.(bool)
	}
	found := reaches(t, func(t reflect.Type) bool { return t == quantityType }, map[reflect.Type]bool{})
	holders.Store(t, found)
	return found
}

// reaches reports whether t contains a wanted type.
func reaches(t reflect.Type, wanted func(reflect.Type) bool, seen map[reflect.Type]bool) bool {
	if wanted(t) {
		return true
	}
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return reaches(t.Elem(), wanted, seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if reaches(t.Field(i).Type, wanted, seen) {
				return true
			}
		}
	}
	return false
}

// plain returns the type behind all pointers.
func plain(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// member returns the type of a struct's field by its JSON name, including fields of inlined
// structs. It returns nil if the field cannot contain a quantity. Names match in any case, because
// some decoders ignore case.
func member(t reflect.Type, name string) reflect.Type {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case tag != "" && strings.EqualFold(tag, name):
			if holds(f.Type) {
				return f.Type
			}
			return nil
		case tag == "" && plain(f.Type).Kind() == reflect.Struct && holds(f.Type):
			if found := member(plain(f.Type), name); found != nil {
				return found
			}
		}
	}
	return nil
}
