"""Files beside the forecasts: an XDMF file for ParaView and VisIt, and a picture of the errors."""

from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from hpcgnn.graphfile.hdf5 import opened
from hpcgnn.records import replaced_by
from hpcgnn.report.style import drawing

_GEOMETRY = {2: "XY", 3: "XYZ"}
_KINDS = {1: "Scalar", 3: "Vector"}


def write_xdmf(path: Path) -> list[Path]:
    """Describe an HDF5 file of forecasts as points with fields at many times. Returns [its name], or [] where nodes
    have no positions in a plane or in space.
    """
    with opened(path) as file:
        times = file["time"][:].tolist()
        shapes = {name: field.shape for name, field in file["snapshots"].items()}
        position = file["position"].shape if "position" in file else (0, 0)
        sizes = {f"snapshots/{name}": field.dtype.itemsize for name, field in file["snapshots"].items()}
        sizes["position"] = file["position"].dtype.itemsize if "position" in file else 0
    if position[1] not in _GEOMETRY:
        return []
    root = ElementTree.Element("Xdmf", Version="3.0")
    domain = ElementTree.SubElement(root, "Domain")
    series = ElementTree.SubElement(domain, "Grid", Name="forecast", GridType="Collection", CollectionType="Temporal")

    def item(parent: ElementTree.Element, name: str, shape: tuple[int, ...]) -> None:
        size = " ".join(map(str, shape))
        attributes = {"Dimensions": size, "NumberType": "Float", "Precision": str(sizes[name]), "Format": "HDF"}
        ElementTree.SubElement(parent, "DataItem", attributes).text = f"{path.name}:/{name}"

    for step, time in enumerate(times):
        grid = ElementTree.SubElement(series, "Grid", Name="mesh", GridType="Uniform")
        ElementTree.SubElement(grid, "Time", Value=repr(time))
        ElementTree.SubElement(grid, "Topology", TopologyType="Polyvertex", NumberOfElements=str(position[0]))
        geometry = ElementTree.SubElement(grid, "Geometry", GeometryType=_GEOMETRY[position[1]])
        item(geometry, "position", position)
        for name, shape in shapes.items():
            kind = _KINDS.get(shape[2], "Matrix")
            field = ElementTree.SubElement(grid, "Attribute", Name=name, AttributeType=kind, Center="Node")
            size = " ".join(map(str, shape[1:] if shape[2] > 1 else shape[1:2]))
            part = ElementTree.SubElement(field, "DataItem", ItemType="HyperSlab", Dimensions=size)
            chosen = f"{step} 0 0  1 1 1  1 {shape[1]} {shape[2]}"
            ElementTree.SubElement(part, "DataItem", Dimensions="3 3", Format="XML").text = chosen
            item(part, f"snapshots/{name}", shape)
    written = path.with_suffix(".xdmf")
    with replaced_by(written) as temporary:
        ElementTree.indent(root)
        ElementTree.ElementTree(root).write(temporary, "utf-8", xml_declaration=True)
    return [written]


def draw_errors(path: Path, errors: Mapping[float, Mapping[str, float]]) -> list[Path]:
    """Draw each field's RMSE against time beside a file of forecasts. Returns [the picture], or [] without errors or
    without matplotlib.
    """
    if not errors:
        return []
    written = path.with_suffix(".png")
    try:
        with drawing() as sheet:
            figure = sheet(figsize=(5.5, 3.8))
            axis = figure.add_subplot()
            for name in next(iter(errors.values())):
                axis.plot(list(errors), [each[name] for each in errors.values()], marker=".", label=name)
            axis.set(xlabel="time", ylabel="RMSE of the forecast, in the field's units", ylim=(0, None))
            axis.legend()
            with replaced_by(written) as temporary:
                figure.savefig(temporary, dpi=140, format="png")
    except ImportError:
        return []
    return [written]
