#!/usr/bin/env python3
"""Makes a wheel of an installed Eddy: the program with the libraries that it loads, its licences, exercises and examples.

    wheel.py PREFIX FOLDER      PREFIX: where cmake --install has put a program that looks for libraries in
                                $ORIGIN/../libexec/eddy; FOLDER: where the wheel goes

The libraries are those of this system, which must be Debian's or Ubuntu's, since its packages say what licences they have.
glibc alone stays outside. The wheel's tag names the oldest glibc that has each version of a symbol that a file inside asks
for. pip puts the program into bin/, the libraries into libexec/eddy/ and the rest into share/ of an environment (not into
lib/, of which pip install --target takes Python's part alone). The same files give the same wheel, byte for byte.
"""
import base64
import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

NAME = "eddy_train"
RPATH = "$ORIGIN/../libexec/eddy"
# What each Linux with glibc has.
GLIBC = re.compile(r"(ld-linux.*|lib(c|m|mvec|dl|rt|util|pthread|resolv|anl))\.so\.\d+$")
# Compiled in, so that no library names them.
HEADERS = ["libcli11-dev", "libtomlplusplus-dev", "libxxhash-dev", "nlohmann-json3-dev"]
MACHINES = {"Advanced Micro Devices X86-64": "x86_64", "AArch64": "aarch64"}
DOCUMENTS = Path("/usr/share/doc")


def refuse(why):
    sys.exit(f"wheel.py: {why}")


def said_by(*command):
    """What a command prints, of a program that sees nothing of this environment."""
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"})
    if done.returncode != 0:
        refuse(f"{' '.join(map(str, command))}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def loaded_by(program):
    """Each library that a program loads, by its name, but those of glibc: where the loader finds it."""
    libraries = {}
    for name, place in re.findall(r"^\s*(\S+) => (\S+|not found)", said_by("ldd", program), re.MULTILINE):
        if place.startswith("not"):
            refuse(f"{program} needs {name}, which is not found")
        if not GLIBC.match(name):
            # Not the build for newer processors that the loader may prefer here.
            libraries[name] = Path(re.sub(r"/glibc-hwcaps/[^/]+", "", place))
    return libraries


def oldest_glibc(files):
    """The version of glibc that is asked for, as numbers, and the file that asks for it."""
    newest = ((0,), None)
    for file in files:
        versions = re.findall(r"Name: GLIBC_(\S+)", said_by("readelf", "--version-info", "--wide", file))
        for version in versions:
            if version == "ABI_DT_RELR":  # relative relocations, packed, which glibc reads from 2.36 on
                version = "2.36"
            if not re.fullmatch(r"[\d.]+", version):
                refuse(f"{file} asks for GLIBC_{version}, which another glibc need not have")
            newest = max(newest, (tuple(map(int, version.split("."))), file))
    return newest


def machine_of(program):
    machine = re.search(r"Machine: +(.+)", said_by("readelf", "--file-header", program)).group(1)
    return MACHINES.get(machine) or refuse(f"{program} is for {machine}, and wheels are made for {', '.join(MACHINES)}")


def search_paths(file):
    return re.findall(r"\((RPATH|RUNPATH)\).*\[(.*)\]", said_by("readelf", "--dynamic", "--wide", file))


def package_of(library):
    """The package that a library is of. It may know the file by its place before /lib became /usr/lib."""
    real = str(library.resolve())
    for place in (real, real.removeprefix("/usr")):
        found = subprocess.run(["dpkg", "--search", place], capture_output=True, text=True)
        if found.returncode == 0:
            return found.stdout.split(":")[0]
    return refuse(f"{real} is of no package, so nothing says its licence (install it as a package of Debian or Ubuntu)")


def licences(tree, libraries):
    """The files of licenses/: of Eddy, of each package inside, and the texts that these refer to."""
    files = {"LICENSE": (tree / "LICENSE").read_bytes()}
    parts = {}
    for name in sorted(libraries):
        parts.setdefault(package_of(libraries[name]), []).append(f"libexec/eddy/{name}")
    for package in HEADERS:
        parts.setdefault(package, []).append("compiled in, from headers")
    lines = [
        "The program eddy is under the MIT licence (LICENSE). The wheel also carries parts of these packages, each under",
        "the licence in the folder of its name; common-licenses/ has the texts that those files refer to. The libraries of",
        "libexec/eddy are shared, and others of the same interface may stand in their place. Debian keeps the sources:",
        "https://snapshot.debian.org/package/SOURCE/VERSION/",
        "",
    ]
    for package, inside in sorted(parts.items()):
        copyright_file = DOCUMENTS / package / "copyright"
        if not copyright_file.is_file():
            refuse(f"{copyright_file} is missing, and a wheel carries the licences of what is inside")
        files[f"{package}/copyright"] = copyright_file.read_bytes()
        source = said_by("dpkg-query", "--show", "--showformat=${source:Package} ${source:Version}\n", package)
        lines.append(f"{package}: {', '.join(inside)} (source and version: {source.splitlines()[0]})")
    for text in [text for name, text in files.items() if name.endswith("/copyright")]:
        for name in re.findall(rb"/usr/share/common-licenses/([A-Za-z0-9.+-]*[A-Za-z0-9])", text):
            common = Path("/usr/share/common-licenses") / name.decode()
            files[f"common-licenses/{name.decode()}"] = common.read_bytes()
    files["INSIDE"] = ("\n".join(lines) + "\n").encode()
    return files


def metadata(version, tag, glibc, licence_names):
    about = Path(__file__).with_name("wheel.md").read_text(encoding="utf-8")
    head = [
        "Metadata-Version: 2.4",
        "Name: " + NAME.replace("_", "-"),
        f"Version: {version}",
        "Summary: Trains recurrent transformers: the program eddy, with the libraries that it loads",
        "License: MIT, and those of the libraries inside",
        *[f"License-File: {name}" for name in licence_names],
        "Description-Content-Type: text/markdown",
    ]
    wheel = ["Wheel-Version: 1.0", "Generator: eddy wheel.py", "Root-Is-Purelib: false", f"Tag: {tag}"]
    text = about.replace("@GLIBC@", glibc).replace("@VERSION@", version)
    return {"METADATA": "\n".join(head) + "\n\n" + text, "WHEEL": "\n".join(wheel) + "\n"}


def write_wheel(file, contents):
    """contents: of each path inside, its bytes and whether it is a program. RECORD, at the end, lists them."""
    records = []
    info = file.name.split("-py3-")[0] + ".dist-info"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:

        def add(path, content, runs):
            entry = zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if runs else 0o100644) << 16
            archive.writestr(entry, content)

        for path, (content, runs) in sorted(contents.items()):
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            records.append(f"{path},sha256={digest},{len(content)}\n")
            add(path, content, runs)
        add(f"{info}/RECORD", "".join(records) + f"{info}/RECORD,,\n", False)


def main(prefix, folder):
    tree = Path(__file__).resolve().parents[2]
    program, inside = prefix / "bin" / "eddy", prefix / "libexec" / "eddy"
    if not program.is_file():
        refuse(f"{program} is missing (cmake --install puts it there)")
    # RUNPATH would not serve the libraries that libraries load.
    if search_paths(program) != [("RPATH", RPATH)]:
        refuse(f"{program} looks for libraries in {search_paths(program) or 'no place of its own'}, not in the RPATH "
               f"{RPATH} (cmake/packaging/wheel.sh configures it so)")

    shutil.rmtree(inside, ignore_errors=True)
    libraries = loaded_by(program)
    inside.mkdir(parents=True)
    for name, place in libraries.items():
        if search_paths(place):
            refuse(f"{place} has a search path of its own, which hides that of the program")
        shutil.copyfile(place.resolve(), inside / name)
    for name, place in loaded_by(program).items():
        if place.resolve().parent != inside.resolve():
            refuse(f"{program} loads {place}, which is not inside")

    version = said_by(program, "--version").strip()
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        refuse(f"{program} --version is not a number alone: {version}")
    glibc, asks = oldest_glibc([program, *sorted(inside.iterdir())])
    tag = f"py3-none-manylinux_{glibc[0]}_{glibc[1]}_{machine_of(program)}"
    data, info = f"{NAME}-{version}.data", f"{NAME}-{version}.dist-info"
    contents = {f"{data}/scripts/eddy": (program.read_bytes(), True)}
    for file in [*inside.iterdir(), *(prefix / "share").rglob("*")]:
        if file.is_file():
            contents[f"{data}/data/{file.relative_to(prefix)}"] = (file.read_bytes(), False)
    texts = licences(tree, libraries)
    for name, content in texts.items():
        contents[f"{info}/licenses/{name}"] = (content, False)
    for name, text in metadata(version, tag, ".".join(map(str, glibc)), sorted(texts)).items():
        contents[f"{info}/{name}"] = (text.encode(), False)

    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{NAME}-{version}-{tag}.whl"
    write_wheel(file, contents)
    print(f"{file}: {file.stat().st_size / 1e6:.1f} MB, {len(libraries)} libraries inside; "
          f"needs glibc {'.'.join(map(str, glibc))} or later, which {asks.name} asks for")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
