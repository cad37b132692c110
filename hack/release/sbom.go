package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
)

const self = common.ElementID("knarr")

// writeSBOM writes the SPDX document: the package knarr with everything it contains.
func writeSBOM(path string, o options, modules []module) error {
	doc := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName:      "knarr-" + o.version,
		DocumentNamespace: "https://github.com/knarr-project/knarr/sbom/" + o.version + "/" + o.commit,
		CreationInfo:      &spdx.CreationInfo{Created: o.date.UTC().Format(time.RFC3339), Creators: []common.Creator{{CreatorType: "Tool", Creator: "knarr-hack-release"}}},
	}
	doc.Packages = []*spdx.Package{{
		PackageName: "knarr", PackageSPDXIdentifier: self, PackageVersion: o.version,
		PackageDownloadLocation: "NOASSERTION", PackageLicenseConcluded: "Apache-2.0", PackageLicenseDeclared: "Apache-2.0",
		PackageCopyrightText: "NOASSERTION", PackageSourceInfo: "commit " + o.commit,
	}}
	doc.Relationships = []*spdx.Relationship{{
		RefA: common.MakeDocElementID("", "DOCUMENT"), RefB: common.MakeDocElementID("", string(self)), Relationship: common.TypeRelationshipDescribe,
	}}
	for i, m := range append(append([]module(nil), o.libs...), modules...) {
		p := packageOf(m, i)
		doc.Packages = append(doc.Packages, p)
		doc.Relationships = append(doc.Relationships, &spdx.Relationship{
			RefA: common.MakeDocElementID("", string(self)), RefB: common.MakeDocElementID("", string(p.PackageSPDXIdentifier)),
			Relationship: common.TypeRelationshipContains,
		})
	}
	var b bytes.Buffer
	if err := spdxjson.Write(doc, &b, spdxjson.Indent("  ")); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

func packageOf(m module, i int) *spdx.Package {
	p := &spdx.Package{
		PackageName: m.Path, PackageSPDXIdentifier: common.ElementID(fmt.Sprintf("part-%d", i)), PackageVersion: m.Version,
		PackageDownloadLocation: "NOASSERTION", PackageLicenseConcluded: "NOASSERTION", PackageLicenseDeclared: m.Licence,
		PackageCopyrightText: "NOASSERTION", PackageComment: "in " + strings.Join(m.In, ", "),
	}
	if m.Sum == "" {
		return p
	}
	p.PackageComment += "; hash of go.sum: " + m.Sum
	p.PackageExternalReferences = []*spdx.PackageExternalReference{{
		Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: "pkg:golang/" + m.Path + "@" + m.Version,
	}}
	return p
}
