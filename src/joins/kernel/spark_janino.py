"""Compile the kernel on a machine that has a Java runtime but no javac, with pyspark's Janino compiler."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError


def compile_with_janino(java: str, classpath: str, sources: Sequence[str], classes: Path) -> None:
    """Compile Java `sources` of one package into the folder `classes`. Raises RuntimeError if they are invalid."""
    port, token, process = launch_gateway(
        classpath=classpath, java_path=java, die_on_exit=True, enable_auth=True, return_proc=True
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        compiler: Any = gateway.jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setSourceVersion(11)
        compiler.setTargetVersion(8)
        compiler.cook("kernel.java", one_unit(sources))
        for name, code in compiler.getBytecodes().items():
            file = classes / (name.replace(".", "/") + ".class")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(bytes(code))
    except Py4JJavaError as error:
        raise RuntimeError(f"the join kernel can not be compiled: {error.java_exception.toString()[:1000]}") from None
    finally:
        gateway.close()
        process.kill()
        process.wait()
        process.stdin.close()  # py4j's own threads read and close its stdout


def one_unit(sources: Sequence[str]) -> str:
    """Concatenate the files of a package into one source. They refer to one another, and Janino takes only one file."""
    packages = sorted({line for text in sources for line in re.findall(r"^package .*;$", text, re.MULTILINE)})
    imports = sorted({line for text in sources for line in re.findall(r"^import .*;$", text, re.MULTILINE)})
    bodies = [re.sub(r"^(package|import) .*;$", "", text, flags=re.MULTILINE) for text in sources]
    return "\n".join([*packages, *imports, *bodies])


if __name__ == "__main__":
    try:
        compile_with_janino(
            sys.argv[1], sys.argv[2], [Path(name).read_text() for name in sys.argv[4:]], Path(sys.argv[3])
        )
    except RuntimeError as error:
        sys.exit(str(error))
